"""`python -m nemo_gym` is `gym`."""

from nemo_gym.cli.entry import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
