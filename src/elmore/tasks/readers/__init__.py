"""Files of labelled data, in the formats in which they are published."""
