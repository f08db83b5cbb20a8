/** Numbers by key, such as how much each runtime uses. A key whose number is 0 takes no memory. */
export class Tally {
  readonly #numbers = new Map<string, number>()

  /** Keys whose number is not 0. */
  get size(): number {
    return this.#numbers.size
  }

  of(key: string): number {
    return this.#numbers.get(key) ?? 0
  }

  /** A negative change takes back. */
  add(key: string, change: number): void {
    const number = this.of(key) + change
    if (number === 0) this.#numbers.delete(key)
    else this.#numbers.set(key, number)
  }
}
