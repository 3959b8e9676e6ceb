"""``python -m kvverify``."""

from kvverify.cli import main

if __name__ == "__main__":
    main()
