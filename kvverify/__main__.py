"""``python -m kvverify``."""

from kvverify.entry import main

if __name__ == "__main__":
    main()
