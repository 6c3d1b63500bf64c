"""`python -m kseg`: the command line, for who has no `kseg` on the path."""

from kseg.cli.main import main

if __name__ == "__main__":
    main()
