"""The paper's experiments, each one function from a plan to a record of what was found."""

# Each is a module here with a function of the same name.
EXPERIMENTS = {
    "digits": "Digits over photographs",
    "mice": "Proteins of mice",
    "runtime": "Run time against contrastive PCA",
    "optimality": "The factor model",
}
ALL = "all"
