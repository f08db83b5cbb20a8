import { describe, expect, test } from 'vitest'
import { Hosts } from '../../../server/edge/hosts.ts'

describe('hosts', () => {
  const hosts = new Hosts(['tunnels.example.com', 'b.example'], 'connect.tunnels.example.com')
  test.each([
    ['demo.tunnels.example.com', 'demo'],
    ['DEMO.Tunnels.Example.COM:443', 'demo'],
    ['x.b.example.', 'x'],
    ['b.example', undefined],
    ['x.y.b.example', undefined],
    ['x_y.b.example', undefined],
    ['', undefined],
    ['.b.example', undefined],
    ['[::1]:80', undefined],
    [`${'x'.repeat(64)}.b.example`, undefined],
  ])('%j is %j', (authority, runtime) => {
    expect(hosts.runtimeOf(authority)).toBe(runtime)
  })

  test("the control endpoint's name is no runtime, though it is under a domain", () => {
    expect(hosts.match('connect.tunnels.example.com:443')).toEqual({ kind: 'control' })
    expect(hosts.match('connect.b.example').kind).toBe('runtime')
  })
})
