/** Passes everything on between the ends of an exchange, and shows it to the exchange's entry. */
import type { SallyportError } from '../../protocol/base/errors.ts'
import { logDefect } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import type { HeaderList, ResponseHead, ResponseSink } from '../../protocol/exchange.ts'
import { PassThrough } from '../../protocol/layer.ts'
import type { Entry } from './entry.ts'

export class Tap extends PassThrough {
  #entry: Entry | undefined
  readonly #logger: Logger

  constructor(entry: Entry, response: ResponseSink, logger: Logger) {
    super(response)
    this.#entry = entry
    this.#logger = logger
  }

  /** A defect of the inspector may lose what is shown, but never harms the exchange. */
  #show(step: (entry: Entry) => void): void {
    if (this.#entry === undefined) return
    try {
      step(this.#entry)
    } catch (error) {
      this.#entry = undefined
      logDefect(this.#logger, 'the inspector failed', error)
    }
  }

  override requestData(chunk: Uint8Array): void {
    this.#show(entry => entry.requestData(chunk))
    super.requestData(chunk)
  }

  override requestEnd(trailers: HeaderList): void {
    this.#show(entry => entry.requestEnd())
    super.requestEnd(trailers)
  }

  override responseHead(head: ResponseHead): void {
    this.#show(entry => entry.responseHead(head))
    super.responseHead(head)
  }

  override responseData(chunk: Uint8Array): void {
    this.#show(entry => entry.responseData(chunk))
    super.responseData(chunk)
  }

  protected override over(error: SallyportError | undefined, cut: boolean): void {
    this.#show(entry => entry.over(error, cut))
  }
}
