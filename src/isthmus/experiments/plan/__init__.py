"""Predict what training would cost elsewhere: rehearse it here, replay it on described machines and links."""

from isthmus.experiments.plan.plan import Outlook, Outlooks, PlanRequest, plan

__all__ = ["Outlook", "Outlooks", "PlanRequest", "plan"]
