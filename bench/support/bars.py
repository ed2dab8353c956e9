"""A picture of groups of bars."""


def draw(path, groups, heights, label, is_sideways=False):
    """`groups`: the names below them; `heights`: by the name of a colour, one for each group, 0 where there is none."""
    import matplotlib  # pylint: disable=import-outside-toplevel
    matplotlib.use("Agg")
    from matplotlib import pyplot  # pylint: disable=import-outside-toplevel
    pyplot.rcParams.update({"font.size": 9, "axes.grid": True, "grid.alpha": 0.3, "svg.hashsalt": "tally"})
    figure, axes = pyplot.subplots(figsize=(10, 1 + 0.45 * len(groups)) if is_sideways else (10, 3.6))
    thickness = 0.8 / max(len(heights), 1)
    for number, (name, values) in enumerate(heights.items()):
        places = [place + (number - (len(heights) - 1) / 2) * thickness for place in range(len(groups))]
        (axes.barh if is_sideways else axes.bar)(places, values, thickness, label=name)
    if is_sideways:
        axes.set_yticks(range(len(groups)), groups)
        axes.invert_yaxis()
        axes.set_xlabel(label)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.legend(fontsize=8)
    else:
        axes.set_xticks(range(len(groups)), groups)
        axes.set_ylabel(label)
        axes.legend(fontsize=8, ncols=len(heights), loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
