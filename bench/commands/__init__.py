"""Commands of the program `fieldslab` that measure."""
