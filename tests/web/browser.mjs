// Chromium with a software adapter, or with none.
import { createRequire } from "node:module";
import { join } from "node:path";

const { chromium } = createRequire(join(process.env.TILEWRIGHT_NODE ?? process.cwd(), "x"))("playwright-core");

const SWIFTSHADER = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader"];
const ADAPTER = ["--enable-unsafe-webgpu", "--enable-features=Vulkan", "--use-vulkan=swiftshader"];

export const open = (adapter, flags = []) =>
  chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--headless=new", "--no-sandbox", ...SWIFTSHADER, ...(adapter ? ADAPTER : []), ...flags],
    ignoreDefaultArgs: ["--disable-gpu"],
  });
