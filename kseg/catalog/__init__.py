"""What lies at paths: `catalog` lists each partition once, and says what it leaves out."""
