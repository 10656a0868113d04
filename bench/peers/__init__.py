"""fieldslab beside the formats and loaders that people use: same machine, same data, one run."""
