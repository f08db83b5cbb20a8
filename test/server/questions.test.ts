/** How the places for questions to the directory are shared, while it does not answer. */
import { beforeEach, expect, test } from 'vitest'
import { ignore } from '../../protocol/base/guard.ts'
import type { Directory } from '../../server/directory/directory.ts'
import { Questions } from '../../server/questions.ts'

let answers: PromiseWithResolvers<'unknown'>[]
let questions: Questions
let names = 0
beforeEach(() => {
  answers = []
  const refresh = () => {
    const answer = Promise.withResolvers<'unknown'>()
    answers.push(answer)
    return answer.promise
  }
  questions = new Questions({ refresh } as unknown as Directory)
})

/** How many of that many questions of a network are asked. */
function ask(network: string | undefined, count: number): number {
  let asked = 0
  for (let i = 0; i < count; i++) {
    const answer = questions.ask(`name-${names++}`, network)
    if (answer === 'refused') continue
    answer.catch(ignore)
    asked++
  }
  return asked
}

test('one network, or an embedder, takes no more places than it leaves', () => {
  expect(ask('greedy', 10_000)).toBe(2048)
  expect(ask('honest', 1000)).toBe(1000)
  expect(ask(undefined, 10_000)).toBe(524)
  expect(ask('late', 10)).toBe(10)
})

test('networks that ask all the time leave room for one that has no question under way', async () => {
  for (let round = 0; round < 20; round++) {
    for (let i = 0; i < 20; i++) while (ask(`greedy-${i}`, 1) === 1);
    for (const { resolve } of answers.splice(0, answers.length / 2)) resolve('unknown')
    await new Promise(setImmediate)
  }
  expect(ask('honest', 50)).toBe(50)
})

test('a question that has ended leaves its place, even if it failed', async () => {
  expect(ask('network', 5000)).toBe(2048)
  const failing = answers.splice(0)
  for (const { reject } of failing) reject(new Error('lost'))
  await Promise.allSettled(failing.map(({ promise }) => promise))
  await new Promise(setImmediate)
  expect(ask('network', 5000)).toBe(2048)
})

test('a directory that throws at once leaves no question behind', async () => {
  let isBroken = true
  const refresh = () => {
    if (isBroken) throw new Error('broken')
    return Promise.resolve(undefined)
  }
  questions = new Questions({ refresh } as unknown as Directory)
  await expect(questions.ask('name', 'network')).rejects.toThrow('broken')
  expect(questions.isAsked('name')).toBe(false)
  isBroken = false
  expect(await questions.ask('name', 'network')).toBeUndefined()
})
