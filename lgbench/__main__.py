"""`python -m lgbench`, the command where scripts are not on the path."""

from lgbench.cli.main import main

if __name__ == "__main__":
    main()
