"""A module for each command, named after it, whose ``parser`` makes the command's parser."""
