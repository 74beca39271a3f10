"""FilesTransactionalSpout: files of a folder as transactions, with exact ranges of each file."""
