"""Predict what training would cost elsewhere: rehearse it here, replay it on machines and links that are only
described."""

from isthmus.experiments.plan.plan import Outlook, Outlooks, PlanRequest, plan

__all__ = ["Outlook", "Outlooks", "PlanRequest", "plan"]
