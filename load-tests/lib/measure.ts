/** Runs rounds, interleaved across the subjects, and summarizes their figures. */

/** Median, minimum and maximum of the rounds. */
export interface Figure {
  readonly median: number
  readonly min: number
  readonly max: number
}

export function figure(values: readonly number[]): Figure {
  const sorted = values.filter(value => !Number.isNaN(value)).sort((a, b) => a - b)
  if (sorted.length === 0) return { median: Number.NaN, min: Number.NaN, max: Number.NaN }
  const middle = sorted.length >> 1
  const median = sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2
  return { median, min: sorted[0]!, max: sorted.at(-1)! }
}

/** The value below which a share `q` of the sorted values lies (nearest rank). */
export function quantile(sorted: readonly number[], q: number): number {
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(q * sorted.length) - 1))] ?? Number.NaN
}

/** The slope of the least-squares line through the points. */
export function slope(points: readonly (readonly [number, number])[]): number {
  const mean = (index: 0 | 1) => points.reduce((sum, point) => sum + point[index], 0) / points.length
  const [meanX, meanY] = [mean(0), mean(1)]
  let covariance = 0
  let variance = 0
  for (const [x, y] of points) {
    covariance += (x - meanX) * (y - meanY)
    variance += (x - meanX) ** 2
  }
  return covariance / variance
}

/** The figures of one round. `wrong` counts answers that are wrong, short or missing. */
export interface Round {
  readonly figures: Readonly<Record<string, number>>
  readonly wrong: number
}

/** A row of a table: one subject, over all rounds. */
export interface Measured {
  readonly key: string
  readonly name: string
  readonly figures: Readonly<Record<string, Figure>>
  readonly wrong: number
}

export interface Subject {
  readonly key: string
  readonly name: string
}

export interface Rounds {
  readonly rounds: number
  /** Whether, or for which keys, a first round is run and discarded, except for its wrong answers. Default true. */
  readonly warmUp?: boolean | ((key: string) => boolean)
  readonly progress: (text: string) => void
}

/** Runs `once` on each subject in turn, `rounds` times. */
export async function interleaved<S extends Subject>(
  subjects: readonly S[],
  { rounds, warmUp = true, progress }: Rounds,
  once: (subject: S, isWarmUp: boolean) => Promise<Round>,
): Promise<Measured[]> {
  const all = subjects.map((): Round[] => [])
  const isWarmedUp = (subject: S) => (typeof warmUp === 'boolean' ? warmUp : warmUp(subject.key))
  for (let round = 0; round <= rounds; round++)
    for (const [index, subject] of subjects.entries()) {
      if (round === 0 && !isWarmedUp(subject)) continue
      progress(`${subject.name}, ${round === 0 ? 'warm-up' : `round ${round} of ${rounds}`}`)
      all[index]!.push(await once(subject, round === 0))
    }
  return subjects.map((subject, index) => {
    if (!isWarmedUp(subject)) return summary(subject, all[index]!)
    const [first, ...others] = all[index]!
    return summary(subject, others, first!.wrong)
  })
}

/** One row from the given rounds. */
export function summary({ key, name }: Subject, rounds: readonly Round[], moreWrong = 0): Measured {
  const names = [...new Set(rounds.flatMap(round => Object.keys(round.figures)))]
  const values = (figureName: string) => rounds.map(round => round.figures[figureName] ?? Number.NaN)
  return {
    key,
    name,
    figures: Object.fromEntries(names.map(each => [each, figure(values(each))])),
    wrong: rounds.reduce((sum, round) => sum + round.wrong, moreWrong),
  }
}
