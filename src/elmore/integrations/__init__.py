"""elmore inside other libraries: one thin file for each."""
