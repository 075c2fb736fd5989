"""Estimates the temperature at Newark from those at Kennedy and LaGuardia: all three are airports of New York.

Reading n of each log is of the same hour. `millrace.toml` says which function runs for the records of which log.
"""

HOURS = 3  # a smoothed value is the mean of so many readings
DAY = 24
FORGET = 0.95  # what was learnt a day ago counts for so much of what was learnt today


def smooth(record, ctx):
    """Runs for each reading: appends the mean of the last three."""
    station = record.log[len("raw/") :]
    recent = [record.json()]
    for n in range(max(record.seqno - HOURS + 1, 1), record.seqno):
        recent.append(ctx.get(record.log, n).json())
    mean = sum(reading["celsius"] for reading in recent) / len(recent)
    ctx.append(f"smooth/{station}", {"time": recent[0]["time"], "celsius": round(mean, 2)})


def learn(record, ctx):
    """Runs for each smoothed value of Newark: once a day, refits the model to what was measured there."""
    if record.seqno % DAY:
        return
    model = newest(ctx, "model")
    squares = scaled(model["squares"]) if model else [[0.0] * 3 for _ in range(3)]
    products = scaled([model["products"]])[0] if model else [0.0] * 3
    for n in range(record.seqno - DAY + 1, record.seqno + 1):
        x = terms(ctx.get("smooth/jfk", n).json(), ctx.get("smooth/lga", n).json())
        y = ctx.get("smooth/ewr", n).json()["celsius"]
        for i in range(3):
            products[i] += x[i] * y
            for j in range(3):
                squares[i][j] += x[i] * x[j]
    weights = solve(squares, products)
    ctx.append("model", {"hour": record.seqno, "weights": weights, "squares": squares, "products": products})


def estimate(record, ctx):
    """Runs for each smoothed value of LaGuardia: appends an estimate for Newark, by the model of the day before."""
    number = min((record.seqno - 1) // DAY, ctx.latest("model"))
    if number == 0:
        return
    model, here = ctx.get("model", number).json(), record.json()
    x = terms(ctx.get("smooth/jfk", record.seqno).json(), here)
    celsius = sum(weight * term for weight, term in zip(model["weights"], x))
    ctx.append("estimate", {"hour": record.seqno, "time": here["time"], "celsius": round(celsius, 2)})


def at(record, ctx):
    """Runs when somebody asks: returns what is known of one hour, or of the newest."""
    hour = int(record.text() or ctx.latest("raw/ewr"))
    if not 1 <= hour <= ctx.latest("raw/ewr"):
        raise ValueError(f"there is no hour {hour} yet")
    known = {station: ctx.get(f"raw/{station}", hour).json()["celsius"] for station in ("jfk", "lga", "ewr")}
    first = ctx.get("estimate", 1).json()["hour"] if ctx.latest("estimate") else hour + 1
    estimated = ctx.get("estimate", hour - first + 1).json()["celsius"] if hour >= first else None
    time = ctx.get("raw/ewr", hour).json()["time"]
    return {"hour": hour, "time": time, "measured": known, "estimated": estimated}


def newest(ctx, log):
    seqno = ctx.latest(log)
    return ctx.get(log, seqno).json() if seqno else None


def terms(jfk, lga):
    return [1.0, jfk["celsius"], lga["celsius"]]


def scaled(rows):
    return [[FORGET * value for value in row] for row in rows]


def solve(squares, products):
    """Least squares: Gaussian elimination, with a little weight on an ordinary mean, so that there is always a solution."""
    little = 1e-3 * sum(squares[i][i] for i in range(3)) / 3 + 1e-9
    rows = [list(row) + [products[i] + little * (0.0, 0.5, 0.5)[i]] for i, row in enumerate(squares)]
    for i in range(3):
        rows[i][i] += little
    for i in range(3):
        pivot = max(range(i, 3), key=lambda n: abs(rows[n][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for n in range(3):
            if n != i:
                factor = rows[n][i] / rows[i][i]
                rows[n] = [a - factor * b for a, b in zip(rows[n], rows[i])]
    return [round(rows[i][3] / rows[i][i], 6) for i in range(3)]
