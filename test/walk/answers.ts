/** B1 for answers: one that looks whole to its caller is what the upstream gave, and all of it. */
import type { Socket } from 'node:net'
import { setTimeout as later } from 'node:timers/promises'
import { ByteReader } from '../support/byte-reader.ts'
import { bodyForm, readBody, readHead, value } from '../support/http1-wire.ts'
import { type Behaviour, FILL } from './upstream.ts'

/** What a caller has seen of an answer. */
export class Answer {
  status = 0
  bytes = 0
  trailerBytes = 0
  #isForeign = false

  take(chunk: Uint8Array): void {
    this.bytes += chunk.length
    this.#isForeign ||= chunk.some(byte => byte !== FILL)
  }

  /** What is wrong with it, since it looks whole. */
  fault({ bytes, length, end, trailerBytes }: Behaviour, isHead: boolean, seesTrailers = true): string | undefined {
    if (this.status !== 200) return undefined
    if (this.#isForeign) return 'bytes of something else'
    const isCut = (end === 'cut' || end === 'hang') && !(length && bytes === 0)
    if (isCut && !isHead) return `cut by its upstream, but looks whole with ${this.bytes} bytes`
    const wanted = isHead ? 0 : bytes
    if (this.bytes !== wanted) return `${this.bytes} bytes instead of ${wanted}`
    const trailers = length || isHead || !seesTrailers ? 0 : trailerBytes
    return this.trailerBytes === trailers ? undefined : `trailers of ${this.trailerBytes} bytes instead of ${trailers}`
  }
}

/** Reads the answers on an HTTP/1.1 connection to its end, and calls `onWhole` for each that looks whole. */
export async function readAnswers(
  socket: Socket,
  pauseMs: number,
  isHead: (index: number) => boolean,
  onWhole: (answer: Answer, index: number) => void,
): Promise<void> {
  const reader = new ByteReader(socket)
  const pause = async () => pauseMs > 0 && (await later(pauseMs))
  for (let i = 0; ; ) {
    const head = await readHead(reader)
    if (head === undefined) return
    const answer = new Answer()
    answer.status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(head.start)?.[1])
    if (Number.isNaN(answer.status)) throw new Error(`no status line: ${JSON.stringify(head.start)}`)
    if (answer.status === 101) break
    if (answer.status < 200) continue
    const hasNone = isHead(i) || answer.status === 204 || answer.status === 304
    const trailers: string[] = []
    for await (const chunk of readBody(reader, hasNone ? 'none' : bodyForm(head.fields, true), trailers)) {
      answer.take(chunk)
      await pause()
    }
    answer.trailerBytes = value(trailers, 'x-trailer')?.length ?? 0
    onWhole(answer, i++)
  }
  while ((await reader.some()) !== undefined) await pause()
}
