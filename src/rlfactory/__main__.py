"""`python -m rlfactory`: the same as the console script `rlfactory`."""

from rlfactory.cli import main

if __name__ == "__main__":
    main()
