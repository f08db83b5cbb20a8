import { expect, test } from 'vitest'
import { type BudgetMember, type BufferBudget, createBufferBudget } from '../../../protocol/base/budget.ts'

/** Holds pieces of one size, and sheds as many as it must. */
class Holder implements BudgetMember {
  /** How often somebody looked at any of them. */
  static looks = 0
  readonly #budget: BufferBudget
  readonly #piece: number
  #used = 0

  constructor(budget: BufferBudget, bytes: number, piece: number) {
    this.#budget = budget
    this.#piece = piece
    budget.join(this)
    this.#hold(bytes)
  }

  #hold(bytes: number): void {
    this.#used += bytes
    this.#budget.take(bytes)
  }

  get usedBytes(): number {
    Holder.looks++
    return this.#used
  }

  shed(bytes: number): number {
    const freed = this.#piece === 0 ? 0 : Math.min(Math.ceil(bytes / this.#piece) * this.#piece, this.#used)
    this.#hold(-freed)
    return freed
  }
}

test.each([
  ['the greediest alone, if that is enough', [100, 300, 200], 1, 60, [100, 240, 200]],
  ['down to the next, and then both', [100, 300, 200], 1, 160, [100, 170, 170]],
  ['all, if they hold the same', [100, 100, 100], 1, 60, [80, 80, 80]],
  ['the first only, if its piece is large', [100, 300, 200], 150, 160, [100, 150, 50]],
  ['everything', [100, 300, 200], 1, 700, [0, 0, 0]],
  ['no others for one whose bytes cannot be freed', [100, 300, 200], 0, 60, [100, 300, 200]],
])('who sheds: %s', (_what, held, piece, bytes, left) => {
  const budget = createBufferBudget(1000)
  const holders = held.map(bytes => new Holder(budget, bytes, piece))
  budget.shed(bytes)
  expect(holders.map(({ usedBytes }) => usedBytes)).toEqual(left)
  expect(budget.usedBytes).toBe(left.reduce((sum, bytes) => sum + bytes))
})

test('at its ceiling, a budget looks at each of many members a few times, however many have to shed', () => {
  const members = 4000
  const budget = createBufferBudget(members * 1000)
  for (let i = 0; i < members; i++) new Holder(budget, 1000 + (i % 7), 100)
  Holder.looks = 0
  budget.enforce()
  expect(budget.usedBytes).toBeLessThan((budget.limitBytes * 15) / 16 + 1)
  expect(Holder.looks).toBeLessThan(members * 100)
})
