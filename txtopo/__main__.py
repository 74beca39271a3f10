"""``python -m txtopo`` is ``txtopo``."""

from txtopo.main.group import main

if __name__ == "__main__":
    main()
