"""``FilesTransactionalSpout``: reads the files of a folder in transactions with exact ranges of each file."""
