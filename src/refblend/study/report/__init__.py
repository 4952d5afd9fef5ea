"""Reports on studies: tables, figures, and one page of Markdown for each (:mod:`.build`)."""
