import { createHash } from 'node:crypto'
import { expect, test } from 'vitest'
import { ERRORS, type ErrorCode, SallyportError } from '../../../protocol/base/errors.ts'
import { getHeader } from '../../../protocol/http/headers.ts'
import { problem } from '../../../protocol/http/problem.ts'
import { prefersPage } from '../../../protocol/http/problem-page.ts'

const BROWSER = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8'

test.each(Object.keys(ERRORS) as ErrorCode[])(
  '%s as a page: what it means, code, id; no script and nothing else',
  reason => {
    const { head, body } = problem(new SallyportError(reason, 'http://secret.internal:80'), 'id<script>"1', [], BROWSER)
    const text = Buffer.from(body).toString()
    expect(text).toContain(ERRORS[reason].title)
    expect(text).toContain(`<code>${reason}</code>`)
    expect(text).toContain('id&#60;script&#62;&#34;1')
    // A request whose session was lost may have arrived.
    expect(text).not.toContain('was not reached')
    expect(text).not.toMatch(/<script|secret|javascript:|http:|https:|\son\w+=/i)
    expect(text).toContain('prefers-color-scheme:dark')
    expect(getHeader(head.headers, 'content-type')).toBe('text/html; charset=utf-8')
    expect(getHeader(head.headers, 'sallyport-error')).toBe(reason)
    expect(Number(getHeader(head.headers, 'content-length'))).toBe(body.length)
    const style = /<style>(.*)<\/style>/s.exec(text)![1]!
    const hash = createHash('sha256').update(style).digest('base64')
    const policy = getHeader(head.headers, 'content-security-policy')
    expect(policy).toContain(`default-src 'none'; style-src 'sha256-${hash}'`)
    expect(policy).not.toContain('unsafe')
  },
)

test.each([
  [undefined, false],
  ['*/*', false],
  ['application/json', false],
  ['application/json, text/html', false],
  ['text/html;q=0', false],
  ['text/html;q=0.5, application/problem+json;q=0.9', false],
  ['text/htmlx', false],
  [BROWSER, true],
  ['TEXT/HTML', true],
  ['application/json;q=0.1, text/html ; q=0.2', true],
  [`text/html${' '.repeat(247)}`, true],
])('Accept: %s -> page %s', (accept, page) => {
  expect(prefersPage(accept)).toBe(page)
})

test.each([',', ';', ',text/html'])("a long Accept of %j costs nothing: it is not a browser's", piece => {
  expect(prefersPage(`text/html${piece.repeat(4000)}`)).toBe(false)
})
