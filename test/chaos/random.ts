import { randomOf } from '../support/random.ts'

/** Random numbers that a seed reproduces. */
export interface Random {
  /** From 0 to 1, 1 excluded. */
  next(): number
  between(low: number, high: number): number
  pick<T>(list: readonly T[]): T
}

export function seeded(seed: number): Random {
  const next = randomOf(seed)
  return {
    next,
    between: (low, high) => low + next() * (high - low),
    pick: list => {
      if (list.length === 0) throw new RangeError('nothing to pick from')
      return list[Math.floor(next() * list.length)]!
    },
  }
}
