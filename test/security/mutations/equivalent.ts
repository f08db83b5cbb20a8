/** Refusals that make no difference if removed: others come first, or what they guard cannot fail. */
export interface Equivalent {
  readonly file: string
  /** How the refusal begins. */
  readonly text: string
  readonly because: string
}

const WHOLE = 'a line that ends in CR LF is whole, or `startLine` refuses it'
const SAME_TURN = 'a step of a dial begins in the turn in which the one before it ended: nothing happens in between'
const NO_CONNECTION = 'without a connection the next step throws, which becomes the same StoreError'
const DEFECT = 'only a defect of our own leads there'

export const EQUIVALENT: readonly Equivalent[] = [
  { file: 'client/dial/dial.ts', text: 'this.#fail(error)', because: DEFECT },
  { file: 'protocol/wire/exchange/accept.ts', text: 'this.#fail(toSallyportError(error))', because: DEFECT },
  { file: 'server/peer/link.ts', text: 'this.#failed(socket, errorOf(error))', because: DEFECT },
  { file: 'client/dial/dial.ts', text: 'return this.#fail(this.#over.signal.reason)', because: SAME_TURN },
  { file: 'client/dial/dial.ts', text: 'this.#fail(this.#closed())', because: SAME_TURN },
  {
    file: 'protocol/http/http1/head-reader.ts',
    text: "throw parser.fault('bad-request', 'start line')",
    because: WHOLE,
  },
  { file: 'server/inbox/postgres.ts', text: 'throw this.away()', because: NO_CONNECTION },
  {
    file: 'server/inbox/postgres.ts',
    text: "throw new Error('PostgreSQL rolled the transaction back')",
    because: 'a statement that fails rejects before, and so does a COMMIT that fails itself',
  },
]
