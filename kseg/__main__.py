"""Run the command line as `python -m kseg`."""

from kseg.cli.main import main

if __name__ == "__main__":
    main()
