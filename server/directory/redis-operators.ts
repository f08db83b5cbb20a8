/**
 * Forwards an operator's question to all replicas that share the directory. Questions and answers go over one channel in Redis.
 * Anybody who may write to it can also write to the directory itself, and can do no more here than an operator can.
 */
import { randomUUID } from 'node:crypto'
import { detached, type Guard, logGuard, starting } from '../../protocol/base/guard.ts'
import type { AnswerOthers, AskingReplica, SharedOperators } from './operators.ts'
import { type RedisAddress, RedisLink } from './redis-link.ts'
import { channelOf } from './redis-url.ts'

export interface RedisOperatorsOptions extends AskingReplica {
  /** Called for each connection. */
  readonly redis: () => Promise<RedisAddress>
  readonly prefix: string
}

interface Message {
  readonly id: string
  readonly from: string
  readonly what?: string
  readonly body?: object
  readonly answer?: unknown
}

/** Replaces an answer that could not be given. */
interface Problem {
  readonly problem: string
}

interface Question {
  readonly answers: unknown[]
  readonly from: Set<string>
  expected: number
  readonly done: () => void
}

const DEADLINE_MS = 4000
const ANSWER_MS = 3000
const RETRY_MS = 5000
const MAX_MESSAGE_CHARS = 4 * 1024 * 1024
const MAX_QUESTIONS = 64
const MAX_PROBLEM = 500
const FAILED = 'forwarding questions of operators failed'

export class RedisOperators implements SharedOperators {
  readonly #options: RedisOperatorsOptions
  /** A key of the directory. All replicas listen on the node that has it. */
  readonly #key: string
  readonly #guard: Guard
  readonly #questions = new Map<string, Question>()
  #link: RedisLink | undefined
  #timer: NodeJS.Timeout | undefined
  /** Aborted when it closes, which closes the link. */
  readonly #closing = new AbortController()
  answer: AnswerOthers | undefined

  constructor(options: RedisOperatorsOptions) {
    this.#options = options
    this.#guard = logGuard(options.logger, FAILED)
    this.#key = `{${options.prefix}}:replicas`
  }

  async open(): Promise<void> {
    clearTimeout(this.#timer)
    const { signal } = this.#closing
    if (signal.aborted || this.#link !== undefined) return
    const { redis, prefix } = this.#options
    const listener = { message: (text: string) => this.#receive(text), closed: () => this.#lost() }
    try {
      const address = await redis()
      const place = { channel: channelOf(address.url, prefix, 'operators'), key: this.#key }
      this.#link = await RedisLink.open(address, place, DEADLINE_MS, listener, signal)
      this.#check(this.#link)
    } catch {
      // The directory uses the same Redis, and logs this.
      this.#lost()
    }
  }

  /** Checks regularly that this is still the directory's node, since the link may have nothing else to do for a long time. */
  #check(link: RedisLink): void {
    const again = this.#guard(() => this.#check(link))
    const look = this.#guard(() => {
      link.check(this.#key).then(again, () => {})
    })
    this.#timer = setTimeout(look, RETRY_MS).unref()
  }

  #lost(): void {
    this.#link = undefined
    clearTimeout(this.#timer)
    if (this.#closing.signal.aborted) return
    const due = starting(this.#options.logger, FAILED, () => this.open())
    this.#timer = setTimeout(due, RETRY_MS).unref()
  }

  async ask(what: string, body: object): Promise<unknown[]> {
    if (this.#link === undefined) throw new Error('the other replicas cannot be asked: no Redis')
    if (this.#questions.size >= MAX_QUESTIONS) throw new Error('too many questions are open')
    const id = randomUUID()
    const { promise, resolve } = Promise.withResolvers<void>()
    const question: Question = { answers: [], from: new Set(), expected: Number.POSITIVE_INFINITY, done: resolve }
    this.#questions.set(id, question)
    const timer = setTimeout(resolve, ANSWER_MS)
    try {
      const listeners = await this.#publish({ id, from: this.#options.replica, what, body })
      question.expected = listeners - 1
      if (question.answers.length < question.expected) await promise
      const { answers, expected, from } = question
      // One that is cut off from Redis does not listen, but may still serve.
      const { replica, known } = this.#options
      const missing = new Set(known().filter(name => name !== replica && !from.has(name))).size
      const silent = Math.max(expected - answers.length, missing)
      const others = answers.length + silent
      return silent > 0 ? [...answers, problemOf(`${silent} of ${others} other replicas did not answer`)] : answers
    } finally {
      clearTimeout(timer)
      this.#questions.delete(id)
    }
  }

  async #publish(message: Message): Promise<number> {
    const text = JSON.stringify(message)
    if (text.length > MAX_MESSAGE_CHARS)
      throw new RangeError(`the message has ${text.length} characters, which is too long: ask the replica itself`)
    if (this.#link === undefined) return 0
    return await this.#link.publish(text)
  }

  #receive(text: string): void {
    const message = parse(text)
    if (message === undefined || message.from === this.#options.replica) return
    const question = this.#questions.get(message.id)
    if (message.what !== undefined) detached(this.#options.logger, FAILED, this.#answerQuestion(message))
    else question?.answers.push(message.answer)
    question?.from.add(message.from)
    if (question !== undefined && question.answers.length >= question.expected) question.done()
  }

  async #answerQuestion({ id, from, what, body }: Message): Promise<void> {
    const { replica, logger } = this.#options
    try {
      const answer = await this.answer?.(what!, body ?? {}, from)
      if (answer !== undefined) await this.#publish({ id, from: replica, answer })
    } catch (error) {
      logger.warn({ from, what, err: error }, "could not answer another replica's question")
      const answer = problemOf(`replica ${replica} could not answer: ${(error as Error).message}`.slice(0, MAX_PROBLEM))
      // If this fails, too, the other replica reports that this one did not answer.
      await this.#publish({ id, from: replica, answer }).catch(() => {})
    }
  }

  close(): void {
    this.#closing.abort()
    clearTimeout(this.#timer)
  }
}

function problemOf(problem: string): Problem {
  return { problem }
}

function parse(text: string): Message | undefined {
  if (text.length > MAX_MESSAGE_CHARS) return undefined
  try {
    const message = JSON.parse(text) as Partial<Message> | null
    const isOurs = typeof message?.id === 'string' && typeof message.from === 'string'
    const isQuestion = message?.what === undefined || typeof message.what === 'string'
    const hasBody = message?.body === undefined || (typeof message.body === 'object' && message.body !== null)
    return isOurs && isQuestion && hasBody ? (message as Message) : undefined
  } catch {
    return undefined
  }
}
