"""What training would cost elsewhere: rehearsed here, replayed on machines and links that are only described."""

from isthmus.plan.plan import Asked, Outlook, Outlooks, plan

__all__ = ["Asked", "Outlook", "Outlooks", "plan"]
