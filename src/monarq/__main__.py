"""`python -m monarq`: the same as the command `monarq`."""

from monarq.cli.main import main

if __name__ == "__main__":
    main()
