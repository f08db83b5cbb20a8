import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, test } from 'vitest'
import { SallyportError } from '../../protocol/base/errors.ts'
import type { RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import { compose, type Layer, PassThrough } from '../../protocol/layer.ts'
import { EXCHANGE, ends } from '../support/ends.ts'

const BYTES = Buffer.from('four')
const BROKEN = new SallyportError('upstream-broken')
const GONE = new SallyportError('cancelled')

type Step = (request: RequestSink, response: ResponseSink, status: number) => void

/** What either end may say. */
const STEPS = {
  requestData: request => request.requestData(BYTES),
  requestEnd: request => request.requestEnd([]),
  requestAbort: request => request.requestAbort(GONE),
  responseConsumed: request => request.responseConsumed(4),
  acknowledged: (_, response) => response.acknowledged!(),
  unwanted: (_, response) => response.unwanted!(),
  informational: (_, response) => response.responseInformational(103, []),
  head: (_, response, status) => response.responseHead({ status, headers: [], bodyBytes: 0 }),
  responseData: (_, response) => response.responseData(BYTES),
  responseEnd: (_, response) => response.responseEnd([]),
  responseAbort: (_, response) => response.responseAbort(BROKEN),
  requestConsumed: (_, response) => response.requestConsumed(4),
} satisfies Record<string, Step>

type Name = keyof typeof STEPS

class Watched extends PassThrough {
  readonly told: string[] = []
  protected override over(error: SallyportError | undefined, cut: boolean): void {
    this.told.push(`${error?.reason ?? 'whole'}${cut ? ' cut' : ''} ${this.status}`)
  }
}

function play(status: number, names: readonly Name[]) {
  const { events, front, next } = ends()
  const watched = new Watched(front).pass(next, EXCHANGE)
  for (const name of names) STEPS[name](watched, watched, status)
  return { events, told: watched.told }
}

/** What an exchange reports by the rules of protocol/exchange.ts alone; undefined: it is in progress. */
function outcome(status: number, names: readonly Name[]): string | undefined {
  let head = 0
  const ended = { request: false, response: false }
  for (const name of names) {
    if (name === 'head') head = status
    if (name === 'requestAbort') return `cancelled ${head}`
    if (name === 'responseAbort') return head > 0 ? `upstream-broken cut ${head}` : `upstream-broken ${BROKEN.status}`
    if (name === 'unwanted') return `whole ${head}`
    if (name === 'requestEnd') ended.request = true
    if (name === 'responseEnd') ended.response = true
    if (ended.response && (head !== 101 || ended.request)) return `whole ${head}`
  }
  return undefined
}

const NAMES = Object.keys(STEPS) as Name[]

describe('a pass-through', () => {
  test.each([200, 101])(
    'of a %i passes everything on in order, and ends once, whatever is said in whatever order',
    status => {
      for (const first of NAMES) {
        for (const second of NAMES) {
          for (const third of NAMES) {
            const names = ['head', first, second, third] as const
            for (const said of [names, names.slice(1)]) {
              const { events, told } = play(status, said)
              const expected = said.map(name => STEPS[name])
              expect(events).toHaveLength(expected.length)
              expect([said, told]).toEqual([said, [outcome(status, said)].filter(one => one !== undefined)])
            }
          }
        }
      }
    },
  )

  class Leaving extends PassThrough {
    leave(): void {
      this.detach()
    }
  }

  test('drops what has arrived of the request, if it leaves before there is a next end', () => {
    const { events, front } = ends()
    const leaving = new Leaving(front)
    leaving.requestData(BYTES)
    leaving.leave()
    leaving.requestData(BYTES)
    expect(events).toEqual(['requestConsumed 4', 'requestConsumed 4'])
  })

  test('says nothing to an end that it has left, and drops what still arrives of the request', () => {
    const { events, front, next } = ends()
    const leaving = new Leaving(front).pass(next, EXCHANGE)
    leaving.leave()
    leaving.requestData(BYTES)
    leaving.requestEnd([])
    expect(events).toEqual(['requestConsumed 4'])
  })
})

describe('what a pass-through is told before the next end exists', () => {
  const SAID = ['requestData', 'requestEnd', 'responseConsumed', 'requestAbort'] as const
  const TOLD = ['requestData 4', 'requestEnd', 'responseConsumed 4', 'requestAbort cancelled']

  test.each(SAID.map((name, i) => [name, TOLD[i]!] as const))('reaches it later: %s', (name, told) => {
    const { events, front, next } = ends()
    const passing = new PassThrough(front)
    STEPS[name](passing)
    passing.pass(next, EXCHANGE)
    // Nothing is begun for a caller that has left.
    expect(events).toEqual(name === 'requestAbort' ? [] : [told])
  })

  test.each([
    [SAID.slice(0, 3), TOLD.slice(0, 3)],
    // A caller that has left waits for nothing.
    [SAID, ['responseConsumed 4', 'requestAbort cancelled']],
  ])('reaches it once it has returned, if it answers before that: %j', (names, told) => {
    const { events, front, next } = ends()
    const passing = new PassThrough(front)
    passing.pass((request, response) => {
      for (const name of names) STEPS[name](passing)
      expect(events).toEqual([])
      return next(request, response)
    }, EXCHANGE)
    expect(events).toEqual(told)
  })

  test('arrives in order, with what is said meanwhile', () => {
    const { front, back } = ends()
    const got: string[] = []
    const passing = new PassThrough(front)
    const say = (text: string) => passing.requestData(Buffer.from(text))
    say('a')
    say('B'.repeat(2000))
    say('c')
    const sink: RequestSink = {
      ...back,
      requestData: chunk => {
        got.push(Buffer.from(chunk).toString())
        if (got.length === 3) say('d')
        if (got.length === 4) passing.requestEnd([])
      },
      requestEnd: () => void got.push('end'),
    }
    passing.pass(() => sink, EXCHANGE)
    say('e')
    expect(got).toEqual(['a', 'B'.repeat(2000), 'c', 'd', 'end', 'e'])
  })

  test('arrives with what is said when the waiting credit is given', () => {
    const { events, front, back } = ends()
    const passing = new PassThrough(front)
    passing.responseConsumed(1)
    const responseConsumed = (bytes: number) => {
      back.responseConsumed(bytes)
      if (bytes > 1) return
      passing.requestData(BYTES)
      passing.responseConsumed(2)
      passing.requestEnd([])
    }
    passing.pass(() => ({ ...back, responseConsumed }), EXCHANGE)
    expect(events).toEqual(['responseConsumed 1', 'requestData 4', 'requestEnd', 'responseConsumed 2'])
  })

  test('is kept by nobody once it was passed on', async () => {
    const { front, back } = ends()
    const passing = new PassThrough(front)
    const kept = (() => {
      const chunk = new Uint8Array(64 * 1024)
      passing.requestData(chunk)
      return new WeakRef(chunk)
    })()
    passing.pass(() => back, EXCHANGE)
    await expect
      .poll(() => {
        setFlagsFromString('--expose-gc')
        runInNewContext('gc')()
        return kept.deref() === undefined
      })
      .toBe(true)
    passing.requestEnd([])
  })
})

test('layers run in their order', () => {
  const met: string[] = []
  const named =
    (name: string): Layer =>
    next =>
    (request, response) => {
      met.push(name)
      return next(request, response)
    }
  const { front, next, back } = ends()
  expect(compose([named('a'), named('b')], next)(EXCHANGE, front)).toBe(back)
  expect(met).toEqual(['a', 'b'])
})
