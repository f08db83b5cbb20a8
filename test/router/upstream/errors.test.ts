import { describe, expect, it } from 'vitest'
import { makeTarget } from '../../../router/target.ts'
import { dialError, type UpstreamDialPhase } from '../../../router/upstream/errors.ts'

const target = makeTarget('http', 'svc.internal', 8080, new Map(), undefined)
const reason = (code: string, phase: UpstreamDialPhase) =>
  dialError(Object.assign(new Error('x'), { code }), phase, target).reason

describe('a system error becomes a row of the error table', () => {
  it.each([
    ['ECONNREFUSED', 'connect', 'upstream-refused'],
    ['EHOSTUNREACH', 'connect', 'upstream-refused'],
    ['ENOTFOUND', 'connect', 'upstream-name'],
    ['EAI_AGAIN', 'connect', 'upstream-name'],
    ['ETIMEDOUT', 'connect', 'upstream-timeout'],
    ['EMFILE', 'connect', 'overloaded'],
    ['EADDRNOTAVAIL', 'connect', 'overloaded'],
    ['DEPTH_ZERO_SELF_SIGNED_CERT', 'tls', 'upstream-tls'],
    ['ERR_TLS_CERT_ALTNAME_INVALID', 'tls', 'upstream-tls'],
    ['EPROTO', 'tls', 'upstream-tls'],
    ['ECONNRESET', 'tls', 'upstream-broken'],
  ] as const)('%s during %s is %s', (code, phase, expected) => {
    expect(reason(code, phase)).toBe(expected)
  })

  it('of several addresses that failed, the first counts; the message is for our own log', () => {
    const each = ['ECONNREFUSED', 'ENETUNREACH'].map(code => Object.assign(new Error('x'), { code }))
    const error = dialError(new AggregateError(each), 'connect', target)
    expect(error.reason).toBe('upstream-refused')
    expect(error.message).toBe('connecting to svc.internal:8080 (ECONNREFUSED)')
    expect(dialError(new Error('no code'), 'connect', target).reason).toBe('upstream-refused')
  })
})
