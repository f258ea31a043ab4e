"""`python -m cavalcade` is the command `cavalcade`."""

from cavalcade.cli import main

if __name__ == "__main__":
    main()
