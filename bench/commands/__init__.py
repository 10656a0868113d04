"""Commands of the program `fieldslab` that measure, or need the reader."""
