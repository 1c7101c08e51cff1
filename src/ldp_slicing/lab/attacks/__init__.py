"""What an adversary can still see: reconstructions of sources from their releases, and how good they are. Each takes any plan and view."""
