import { expect, test } from 'vitest'
import { arrival } from './until.ts'

test('what never comes is an error that names it', async () => {
  expect(await arrival(Promise.resolve('here'), 'a session', 1)).toBe('here')
  await expect(arrival(new Promise(() => {}), 'a session', 1)).rejects.toThrow('never came: a session')
})
