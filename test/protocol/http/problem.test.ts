import { describe, expect, test } from 'vitest'
import { ERRORS, type ErrorCode, SallyportError } from '../../../protocol/base/errors.ts'
import type { HeaderList, ResponseHead, ResponseSink } from '../../../protocol/exchange.ts'
import { getHeader } from '../../../protocol/http/headers.ts'
import { answerPreflight, answerProblem, type CorsPolicy, problem } from '../../../protocol/http/problem.ts'

class Recorder implements ResponseSink {
  heads: ResponseHead[] = []
  body = ''
  ended = 0
  responseInformational(): void {}
  responseHead(head: ResponseHead): void {
    this.heads.push(head)
  }
  responseData(chunk: Uint8Array): void {
    this.body += Buffer.from(chunk).toString()
  }
  responseEnd(): void {
    this.ended++
  }
  responseAbort(): void {}
  requestConsumed(): void {}
}

const cors: CorsPolicy = {
  origins: ['https://ui.example.com'],
  methods: ['GET', 'POST'],
  headers: ['content-type'],
  credentials: true,
}

const ask = (method: string, headers: HeaderList = []) => ({ method, requestId: 'id-1', headers })

describe('problem', () => {
  test.each(Object.keys(ERRORS) as ErrorCode[])('%s shows its row and nothing else', reason => {
    const { head, body } = problem(new SallyportError(reason, 'http://secret.internal:80 failed'), 'id-1')
    expect(JSON.parse(Buffer.from(body).toString())).toEqual({
      type: `urn:sallyport:error:${reason}`,
      title: ERRORS[reason].title,
      status: ERRORS[reason].status,
      code: reason,
      requestId: 'id-1',
    })
    expect(head.status).toBe(ERRORS[reason].status)
    expect(getHeader(head.headers, 'sallyport-error')).toBe(reason)
    expect(getHeader(head.headers, 'content-type')).toBe('application/problem+json')
    expect(getHeader(head.headers, 'retry-after') !== undefined).toBe(ERRORS[reason].retryable)
    expect(head.headers.join('\n')).not.toContain('secret')
  })

  test('HEAD gets only the head', () => {
    const sink = new Recorder()
    answerProblem(sink, ask('HEAD'), new SallyportError('no-route'))
    expect(sink.heads[0]?.bodyBytes).toBe(0)
    expect(Number(getHeader(sink.heads[0]!.headers, 'content-length'))).toBeGreaterThan(0)
    expect([sink.body, sink.ended]).toEqual(['', 1])
  })

  test('an allowed origin may read it; Vary is always there', () => {
    const allowed = new Recorder()
    answerProblem(allowed, ask('GET', ['origin', 'https://ui.example.com']), new SallyportError('no-route'), cors)
    expect(getHeader(allowed.heads[0]!.headers, 'access-control-allow-origin')).toBe('https://ui.example.com')
    expect(getHeader(allowed.heads[0]!.headers, 'access-control-allow-credentials')).toBe('true')
    const other = new Recorder()
    answerProblem(other, ask('GET', ['origin', 'https://evil.example']), new SallyportError('no-route'), cors)
    expect(getHeader(other.heads[0]!.headers, 'access-control-allow-origin')).toBeUndefined()
    expect(getHeader(other.heads[0]!.headers, 'vary')).toBe('origin')
  })

  test('a star never allows credentials', () => {
    const sink = new Recorder()
    const star = { origins: ['*'], credentials: true }
    answerProblem(sink, ask('GET', ['origin', 'https://evil.example']), new SallyportError('no-route'), star)
    expect(getHeader(sink.heads[0]!.headers, 'access-control-allow-credentials')).toBeUndefined()
  })
})

describe('preflight', () => {
  const preflight = ['origin', 'https://ui.example.com', 'access-control-request-method', 'POST']

  test('of an allowed origin is answered 204', () => {
    const sink = new Recorder()
    expect(answerPreflight(sink, ask('OPTIONS', preflight), cors)).toBe(true)
    expect(sink.heads[0]?.status).toBe(204)
    expect(getHeader(sink.heads[0]!.headers, 'access-control-allow-methods')).toBe('GET,POST')
    expect(getHeader(sink.heads[0]!.headers, 'access-control-allow-headers')).toBe('content-type')
  })

  test('of another origin, or a plain OPTIONS, is not', () => {
    const sink = new Recorder()
    expect(answerPreflight(sink, ask('OPTIONS', ['origin', 'https://evil.example', ...preflight.slice(2)]), cors)).toBe(
      false,
    )
    expect(answerPreflight(sink, ask('OPTIONS', preflight.slice(0, 2)), cors)).toBe(false)
    expect(answerPreflight(sink, ask('GET', preflight), cors)).toBe(false)
    expect(sink.heads).toEqual([])
  })
})
