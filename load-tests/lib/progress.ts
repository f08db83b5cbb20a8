/** One line on stderr that shows the progress of a run. On a terminal it is overwritten. Elsewhere it is printed when the step changes. */
export class Progress {
  readonly #isTerminal = process.stderr.isTTY === true
  readonly #startedAt = performance.now()
  #step = ''

  say(text: string): void {
    if (this.#isTerminal) return void process.stderr.write(`\r\x1b[2K${this.#time()} ${text}`.slice(0, 110))
    const step = text.split(':')[0]!
    if (step !== this.#step) process.stderr.write(`${this.#time()} ${step}\n`)
    this.#step = step
  }

  /** Clears the line for other output. */
  clear(): void {
    if (this.#isTerminal) process.stderr.write('\r\x1b[2K')
  }

  get elapsedMs(): number {
    return performance.now() - this.#startedAt
  }

  #time(): string {
    const seconds = Math.round(this.elapsedMs / 1000)
    return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`
  }
}
