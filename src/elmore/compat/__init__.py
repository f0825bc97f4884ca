"""Old libraries' call signatures over elmore's parts: one module for each library."""
