"""Ten short documents, and questions that ask for them in other words. They were written before the
ranking was tuned, and their results were in sight meanwhile."""

from typing import Final

TEXTS: Final = (
    "Tenants pay their rent by the third working day of each month. The lease runs for two years, and either side "
    "may end it with three months of notice.",
    "A star like the Sun swells into a red giant when its hydrogen runs out, sheds its outer layers, and leaves a "
    "white dwarf that cools for billions of years.",
    "Fold the dough, let it rise overnight in the fridge, and bake it in a very hot oven with steam, so that the crust becomes crisp.",
    "Employees who are ill tell their manager before nine in the morning, and bring a note from a physician from the third day on.",
    "The pump draws water from the cellar when the float switch closes. Clean its filter twice a year, or it will overheat.",
    "Revenue grew by eleven percent in the second quarter, driven by subscriptions, while the cost of shipping went down.",
    "Swallows leave for Africa in September and come back in April, finding the same barn by the sun and by the "
    "magnetic field of the Earth.",
    "To get a new password, open the sign-in page, choose that you have forgotten it, and follow the link that comes by e-mail.",
    "The treaty of 1648 ended thirty years of fighting in central Europe and gave princes the right to choose the "
    "religion of their lands.",
    "Vaccination teaches the immune system to recognize a virus by a harmless part of it, so that antibodies are "
    "ready when the real one comes.",
)

QUESTIONS: Final = (
    ("end of life of stars", 1),
    ("what happens to suns when they die", 1),
    ("how do I terminate my apartment contract", 0),
    ("cancelling a flat rental", 0),
    ("homemade bread recipe", 2),
    ("calling in sick at work", 3),
    ("doctor's certificate for absence", 3),
    ("flooded basement equipment maintenance", 4),
    ("how much did sales increase", 5),
    ("quarterly earnings of the company", 5),
    ("bird migration in autumn", 6),
    ("how animals navigate", 6),
    ("I cannot log into my account", 7),
    ("reset my login credentials", 7),
    ("peace after a long war", 8),
    ("freedom of faith for rulers", 8),
    ("protection against infectious diseases", 9),
    ("how does immunization work", 9),
)
"""Each with the number of the text that answers it."""
