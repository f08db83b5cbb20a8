import { describe, expect, test } from 'vitest'
import { forgetSockets, givenSockets } from '../../../cli/service/given-sockets.ts'

const given = (names: string, count = names.split(':').length) => ({
  LISTEN_PID: '42',
  LISTEN_FDS: String(count),
  LISTEN_FDNAMES: names,
})

describe('sockets from a supervisor', () => {
  test('have the names of listeners', () => {
    const sockets = givenSockets('server', given('control:public:peer:health:admin'), 42)
    expect(Object.fromEntries(sockets)).toEqual({ control: 3, public: 4, peer: 5, health: 6, admin: 7 })
    expect(Object.fromEntries(givenSockets('router', given('router'), 42))).toEqual({ router: 3 })
  })

  test.each([
    ['none are given', {}],
    ['their number is 0', { LISTEN_PID: '42', LISTEN_FDS: '0', LISTEN_FDNAMES: '' }],
    ['they are for another process', { ...given('public'), LISTEN_PID: '41' }],
  ])('are absent if %s', (_why, environment) => {
    expect(givenSockets('server', environment, 42).size).toBe(0)
  })

  test.each([
    ['an unknown listener', given('public:edge'), 'a socket is given for "edge", which is not one of public'],
    ['a listener of another component', given('router'), 'a socket is given for "router", which is not one of public'],
    ['one listener twice', given('public:public'), 'two sockets are given for "public"'],
    ['fewer names than sockets', given('public', 2), 'LISTEN_FDNAMES must name each of the 2 sockets'],
    ['no names', { LISTEN_PID: '42', LISTEN_FDS: '1' }, 'a socket is given for ""'],
  ])('are refused for %s', (_why, environment, message) => {
    expect(() => givenSockets('server', environment, 42)).toThrow(message)
  })

  test('are not passed to programs that we start', () => {
    const environment: Record<string, string | undefined> = { ...given('public'), PATH: '/bin' }
    forgetSockets(environment)
    expect(environment).toEqual({ PATH: '/bin' })
  })
})
