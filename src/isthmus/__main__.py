"""python -m isthmus"""

from isthmus.launch.paths import look_here_last

if __name__ == "__main__":
    look_here_last()  # before anything else is imported

    from isthmus.cli import main

    main()
