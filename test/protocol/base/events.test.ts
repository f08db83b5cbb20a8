import { expect, test } from 'vitest'
import { Events } from '../../../protocol/base/events.ts'
import { noLogger } from '../../../protocol/base/log.ts'

test('a listener that throws affects nobody', () => {
  const errors: string[] = []
  const events = new Events<{ a: number }>({ ...noLogger, error: (_fields, message) => errors.push(message) })
  const seen: number[] = []
  events.on('a', () => {
    throw new Error('mine')
  })
  const listener = (value: number) => seen.push(value)
  events.on('a', listener)
  events.emit('a', 1)
  events.off('a', listener)
  events.emit('a', 2)
  expect(seen).toEqual([1])
  expect(errors).toEqual(['a listener of "a" threw', 'a listener of "a" threw'])
})
