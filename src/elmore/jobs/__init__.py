"""Long work on several processes: a pool that survives dead workers, a folder that resumes."""
