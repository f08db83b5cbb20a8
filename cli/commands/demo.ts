import type { Run } from '../command.ts'

/** `sallyport demo`; its arguments are its own. */
export const runDemo: Run = async args => {
  const module = await import('../demo/index.ts')
  return module.demo([...args.positionals])
}
