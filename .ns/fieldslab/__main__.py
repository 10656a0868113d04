"""`python -m fieldslab`: the command line, where the program itself is not on the path."""

from fieldslab.packer.cli import main

if __name__ == "__main__":
    main()
