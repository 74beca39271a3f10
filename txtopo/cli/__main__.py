"""``python -m txtopo.cli`` is ``txtopo``."""

from txtopo.cli.main import main

if __name__ == "__main__":
    main()
