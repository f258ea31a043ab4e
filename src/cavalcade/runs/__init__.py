"""Training runs on disk: directories, checkpoints and logs; resumable at any moment."""
