"""Choices that each make sense and together do not: ways to break each rule of the plan."""

import random
from collections.abc import Callable, Iterator

from faulty.bad.case import Case, planned

IMAGES = ("tiny_sd3", "tiny_flux")
TOKENS = (
    *("ppo", "grpo_token", "rloo", "dapo", "dr_grpo", "gspo", "cispo", "reinforce_pp"),
    *("dppo", "cppo", "drpo", "vespo", "gmpo", "maxrl"),
)
STEPWISE = ("grpo", "ddpo", "ddpo_sf", "grpo_guard", "flow_dppo")
FORWARD = ("nft", "awm", "vgrpo")
VP_SCHEDULES = ("leading", "trailing")
Broken = tuple[str, str]
Break = Callable[[random.Random], Broken]
"""Makes overrides, and the key at fault."""

VELOCITY = "{_target_:rlfactory.regularizer.kl_v.KLVelocity,reference:old,coefficient:"
VELOCITY += "{_target_:rlfactory.regularizer.coefficient.Fixed,value:1}}"


def _of(*choices: Broken) -> Break:
    return lambda rng: rng.choice(choices)


def _wrong_kind(rng: random.Random) -> Broken:
    image = rng.choice([*IMAGES, "tiny_sd"])
    for_tokens = f"model={image} algo={rng.choice(TOKENS)}"
    for_images = f"model=tiny_gpt2 algo={rng.choice(STEPWISE + FORWARD)}"
    return rng.choice([for_tokens, for_images]), "algo"


def _noise(rng: random.Random) -> Broken:
    flow = f"model={rng.choice(IMAGES)} algo=grpo dynamics=ddim"
    vp = f"model=tiny_sd dynamics={rng.choice(['flow_sde', 'cps', 'dance_sde'])}"
    tokens = f"model=tiny_gpt2 dynamics={rng.choice(['ode', 'flow_sde', 'sa_solver'])}"
    return rng.choice([flow, vp, tokens]), "dynamics"


def _schedule(rng: random.Random) -> Broken:
    flow = f"model={rng.choice(IMAGES)} schedule=leading"
    return rng.choice([flow, f"model=tiny_sd schedule={rng.choice(['uniform', 'diffusers'])}"]), (
        "schedule"
    )


def _many_steps(rng: random.Random) -> Broken:
    key, spacing = rng.choice(["schedule.steps", "evaluation.steps"]), rng.choice(VP_SCHEDULES)
    return f"model=tiny_sd algo=ddpo schedule={spacing} {key}={rng.randint(1000, 9000)}", key


def _no_likelihood(rng: random.Random) -> Broken:
    solver = rng.choice(["ode", "dpm_solver", "sa_solver"])
    return f"model={rng.choice(IMAGES)} algo={rng.choice(STEPWISE)} dynamics={solver}", "dynamics"


def _penalty(rng: random.Random) -> Broken:
    of_steps = rng.choice(["kl_gaussian", "kl_x", "kl_flow_grpo"])
    final = f"algo={rng.choice(FORWARD)} regularizer={of_steps}"
    images = f"algo={rng.choice(FORWARD + STEPWISE)} regularizer=kl_token"
    tokens = f"model=tiny_gpt2 regularizer={rng.choice(['kl_v', 'kl_x', 'kl_behaviour'])}"
    return rng.choice([final, images, tokens]), "regularizer"


def _groups(rng: random.Random) -> Broken:
    algo = rng.choice(["grpo", "nft", "awm", "vgrpo", "grpo_guard"])
    return rng.choice(
        [f"algo={algo}", f"model=tiny_gpt2 algo={rng.choice(['rloo', 'grpo_token'])}"]
    ) + (" group_size=1"), "group_size"


def _buffers(rng: random.Random) -> Broken:
    size = rng.randint(1, 50)
    more = size + rng.randint(1, 50)
    return f"algo=ddpo advantage.buffer_size={size} advantage.min_count={more}", (
        "advantage.min_count"
    )


def _averages(rng: random.Random) -> Broken:
    key, total = rng.choice(["ema", "old"]), rng.randint(1, 100)
    warmup = total + rng.randint(0, 20)
    return (
        f"{key}.schedule=warmup_cosine {key}.warmup={warmup} {key}.total={total}",
        f"{key}.warmup",
    )


def _branches(rng: random.Random) -> Broken:
    size = rng.randint(3, 40)
    no_divisor = rng.choice([n for n in range(2, size + 9) if size % n])
    grpo = f"algo=grpo group_size={size} branches={no_divisor} updates_per_iteration=1"
    alike = f"algo={rng.choice(FORWARD)} branches={rng.choice([2, 3, 4])}"
    return rng.choice([grpo, alike]), "branches"


def _indivisible(rng: random.Random) -> Broken:
    prompts, size = rng.randint(1, 20), rng.randint(2, 20)
    samples = prompts * size
    updates = rng.choice([n for n in range(2, samples + 9) if samples % n])
    words = f"prompts_per_iteration={prompts} group_size={size} updates_per_iteration={updates}"
    return f"algo={rng.choice(['grpo', 'nft'])} {words}", "updates_per_iteration"


def _window(rng: random.Random) -> Broken:
    steps = rng.randint(3, 30)
    late = rng.randint(steps, steps + 30)
    moving = rng.choice(["random_subset", "random_contiguous", "progressive", "decay"])
    words, key = rng.choice(
        [
            (f"window=fixed window.steps=[0,{late}]", "window.steps"),
            ("window=fixed window.steps=[]", "window.steps"),
            (f"window=all window.skip_last={late}", "window.skip_last"),
            (f"window={moving} window.high={late + 1}", "window.high"),
            (f"window={moving} window.low={late}", "window.low"),
            (f"window={moving} window.size={late + 1}", "window.size"),
            (f"window={moving} window.low=2 window.high=2", "window.low"),
        ]
    )
    return f"algo={rng.choice(['grpo', 'ddpo'])} schedule.steps={steps} {words}", key


def _times(rng: random.Random) -> Broken:
    steps = rng.randint(2, 20)
    kind = rng.choice(["rollout", "discrete", "discrete_with_init", "discrete_wo_init"])
    many = f"times={kind} schedule.steps={steps} times.count={steps + rng.randint(1, 9)}"
    empty = f"times={rng.choice(['uniform', 'logit_normal'])} times.low=0.6 times.high=0.4"
    return rng.choice([(f"algo=nft {many}", "times.count"), (f"algo=awm {empty}", "times.low")])


def _sizes(rng: random.Random) -> Broken:
    model = rng.choice([*IMAGES, "tiny_sd"])
    key = rng.choice(["model.size", "evaluation.size"])
    return f"model={model} {key}={8 * rng.randint(4, 8) + rng.randint(1, 7)}", key


def _optimizer(rng: random.Random) -> Broken:
    key, values = rng.choice(
        [
            ("lr", ["0", "-1e-4", "inf", "nan"]),
            ("betas", ["[0.9]", "[0.9,1]", "[-0.1,0.9]", "[0.9,0.9,0.9]", "[a,b]", "[nan,0.9]"]),
            ("eps", ["-1e-8", "nan"]),
            ("weight_decay", ["-1", "inf", "nan"]),
        ]
    )
    return f"optimizer.{key}={rng.choice(values)}", f"optimizer.{key}"


def _parts(*options: str, key: str) -> Break:
    return lambda rng: (
        f"reward=combine reward.of=[shapes,{rng.choice(['compressibility', 'aesthetic'])}] "
        + rng.choice(options),
        key,
    )


BREAKS: dict[str, list[Break]] = {
    "algo.ratio": [
        _of(("model=tiny_gpt2 algo=grpo_token algo.ratio=product", "algo.ratio")),
    ],
    "require_group": [
        _of(("model=tiny_gpt2 algo=ppo group_size=1 resample=2", "resample")),
        _groups,
        _of(
            ("model=tiny_gpt2 algo=sft algo.column=null group_size=2", "group_size"),
            ("model=tiny_gpt2 algo=sft algo.column=null regularizer=kl_token", "regularizer"),
        ),
        _of(
            ("reward=pickscore_rank group_size=1 algo=ddpo_sf", "group_size"),
            ("model=tiny_gpt2 reward=diversity group_size=1", "group_size"),
        ),
    ],
    "algo.dual_clip": [
        _of(("model=tiny_gpt2 algo=dapo algo.dual_clip=1.1", "algo.dual_clip")),
    ],
    "require_matching_pictures": [
        lambda rng: (f"model={rng.choice(IMAGES)} prompts=edits", "prompts")
    ],
    "require_pure_noise_at_the_start": [
        lambda rng: (
            f"model={rng.choice(IMAGES)} algo=grpo dynamics=flow_sde schedule=dpm",
            "schedule.kind",
        ),
    ],
    "require_sound_on_few_steps": [
        lambda rng: (f"model=tiny_flux algo={rng.choice(FORWARD)} distilled_to=4", "algo"),
    ],
    "require_matching_algorithm": [_wrong_kind],
    "require_matching_dynamics": [_noise],
    "require_matching_schedule": [_schedule],
    "schedule.steps": [_many_steps],
    "require_step_likelihood": [
        _no_likelihood,
        _of(
            ("algo=grpo_guard dynamics=cps", "dynamics"),
            ("algo=grpo_guard dynamics=dance_sde", "dynamics"),
            ("model=tiny_sd algo=grpo_guard dynamics=ddim", "algo"),
        ),
    ],
    "require_matching_divergence": [
        _penalty,
        _of(
            ("model=tiny_sd regularizer=kl_flow_grpo", "regularizer"),
            ("model=tiny_sd regularizer=kl_elbo", "regularizer"),
        ),
        lambda rng: (
            f"algo={rng.choice(['nft', 'grpo'])} regularizer=kl_behaviour"
            " regularizer.compare=surrogate",
            "regularizer.compare",
        ),
    ],
    "require_compatible_run": [
        _of(("begin_from=nowhere", "begin_from"), ("begin_from=/", "begin_from")),
    ],
    "require_valid_terms": [
        _of(
            (
                "algo=awm regularizer=kl_awm ~regularizer.terms.old ~regularizer.terms.reference",
                "regularizer.terms",
            ),
            (
                f"algo=awm regularizer=kl_awm +regularizer.terms.approx={VELOCITY}",
                "regularizer.terms.approx",
            ),
        ),
    ],
    "regularizer.estimator": [
        lambda rng: (
            f"model=tiny_gpt2 algo={rng.choice(TOKENS)} regularizer.estimator=k1",
            "regularizer.estimator",
        ),
    ],
    "algo.score_placement": [
        _of(
            *(
                (
                    f"model=tiny_gpt2 algo={algo} algo.score_placement=uniform",
                    "algo.score_placement",
                )
                for algo in ("rloo", "grpo_token")
            )
        ),
    ],
    "advantage.weights": [
        _of(
            ("advantage.weights={}", "advantage.weights"),
            ("+advantage.weights.shapes=0", "advantage.weights"),
        ),
    ],
    "advantage.min_count": [_buffers],
    "require_warmup_before_end": [_averages],
    "require_branches_fill_groups": [_branches],
    "require_named_sets": [
        _of(
            ("eval_sets.of=[shapes,shapes]", "eval_sets.of"),
            ("eval_sets.of=[shapes] eval_sets.counts.signs=3", "eval_sets.counts.signs"),
        ),
    ],
    "require_tree_algorithm": [
        _of(
            ("algo=grpo branch_at=tree", "branch_at"),
            ("algo=branch_grpo branch_at=window", "branch_at"),
        ),
        _of(
            ("algo=branch_grpo advantage=tracker", "advantage"),
            ("algo=branch_grpo advantage.zero_variance=drop", "advantage.zero_variance"),
        ),
    ],
    "tree.splits": [
        _of(
            ("algo=branch_grpo tree.splits=[0,12]", "tree.splits"),
            ("algo=branch_grpo tree.splits=[0,3] group_size=12 branches=12", "branches"),
        ),
    ],
    "algo.skip_steps": [
        _of(
            ("algo=branch_grpo algo.skip_steps=[10]", "algo.skip_steps"),
            ("algo=branch_grpo algo.skip_steps=[2,30]", "algo.skip_steps"),
        ),
    ],
    "require_single_update": [
        _of(
            ("algo=ddpo_sf updates_per_iteration=4", "updates_per_iteration"),
            ("algo=ddpo_sf epochs=2", "epochs"),
        ),
    ],
    "require_metadata": [
        _of(("model=tiny_gpt2 reward=exact prompts=movies", "reward.answer_column")),
        _of(
            ("reward=shapes prompts=animals", "reward"),
            ("reward=geneval prompts=animals", "reward"),
        ),
    ],
    "require_engine_of_texts": [_of(("model=tiny_sd3 engine=vllm_server", "engine"))],
    "engine": [
        _of(("model=tiny_gpt2 engine=vllm_server dynamics.top_k=5", "dynamics.top_k")),
    ],
    "require_whole_groups": [_of(("model=tiny_gpt2 algo=dpo shares=random", "shares"))],
    "require_template": [
        _of(("model=tiny_gpt2 model.text_role=user", "model.chat_template")),
        _of(("model=tiny_gpt2 model.system_prompt=Rhyme", "model.system_prompt")),
    ],
    "require_answers_of_conversations": [
        _of(
            (
                "model=tiny_gpt2 model.chat_template=plain model.text_role=user algo=sft"
                " algo.column=null",
                "algo.column",
            )
        ),
    ],
    "require_room": [_of(("model=tiny_gpt2 dynamics.length=5000", "dynamics.length"))],
    "require_completions": [
        _of(
            ("model=tiny_gpt2 algo=sft prompts=movies", "algo.column"),
        ),
    ],
    "require_equal_updates": [_indivisible],
    "window": [_window],
    "times": [_times],
    "require_noise_in_last_step": [
        _of(
            (
                "model=tiny_sd dynamics.final_alpha=one",
                "dynamics.final_alpha",
            ),
            (
                "algo=grpo dynamics=cps dynamics.log_prob_of=gaussian window.steps=[9]",
                "dynamics.log_prob_of",
            ),
        ),
    ],
    "dynamics.stop": [_of(("model=tiny_gpt2 dynamics.stop=[END,'']", "dynamics.stop"))],
    "require_reward": [
        _of(
            ("model=tiny_gpt2 algo=ppo reward=none", "reward"),
            ("model=tiny_gpt2 algo=sft algo.column=null reward=none stop.reward=1", "stop.reward"),
        ),
    ],
    "require_distinct_parts": [
        _of(
            ("reward=combine", "reward.of"),
            ("reward=combine reward.of=[shapes,shapes]", "reward.of"),
            ("eval_rewards.of=[shapes,shapes]", "eval_rewards.of"),
            ("eval_rewards.of=[shpaes]", "eval_rewards.of"),
            ("reward=combine reward.of=[combine]", "reward"),
            ("eval_rewards.of=[combine]", "eval_rewards"),
        ),
    ],
    "require_distinct_loggers": [
        _of(
            ("logger=several logger.of=[]", "logger.of"),
            ("logger=several logger.of=[jsonl,jsonl]", "logger.of"),
            ("logger=several logger.of=[several]", "logger.parts.several"),
        ),
    ],
    "hardware.processes": [
        _of(
            ("hardware=ddp prompts_per_iteration=8 hardware.processes=3", "hardware.processes"),
            ("hardware=fsdp2 prompts_per_iteration=4 hardware.processes=8", "hardware.processes"),
        ),
    ],
    "hardware.strategy": [
        _of(
            (
                "hardware=fsdp2 model=tiny_gpt2 model.value_path=zoo:tiny_gpt2",
                "hardware.strategy",
            ),
            ("hardware=fsdp2 model.finetune=full optimizer=adamw_8bit", "optimizer"),
        ),
    ],
    "hardware.shard_size": [
        _of(
            ("hardware=ddp hardware.processes=2 hardware.offload=true", "hardware.offload"),
            ("hardware=fsdp2 hardware.processes=4 hardware.shard_size=3", "hardware.shard_size"),
        ),
    ],
    "require_known_attention": [
        _of(("hardware.deterministic=true memory.attention=flash", "memory.attention")),
        _of(
            ("model=tiny_flux memory.attention=falsh", "memory.attention"),
            ("model=tiny_sd memory.attention=flash", "memory.attention"),
            (
                "model=tiny_flux memory.attention=flash hardware.deterministic=true",
                "memory.attention",
            ),
        ),
    ],
    "reward.of": [
        _parts("reward.weights.shape=1", key="reward.weights.shape"),
        _parts("reward.clips.shape=[0,1]", key="reward.clips.shape"),
        _parts("reward.gates.shape.shapes=1", key="reward.gates.shape"),
        _parts("reward.gates.shapes.other=1", key="reward.gates.shapes.other"),
        _parts("reward.normalise.other=group", key="reward.normalise.other"),
        _parts("reward.parts.other.quality=3", key="reward.parts.other"),
    ],
    "reward.weights": [
        _of(("reward=combine reward.of=[shapes] reward.weights.shapes=0", "reward.weights")),
    ],
    "reward.clips": [
        _parts(
            *(f"reward.clips.shapes={c}" for c in ("[1,0]", "[1]", "[null,null]", "[1,2,3]")),
            key="reward.clips.shapes",
        ),
    ],
    "require_gdpo_advantage": [
        _parts("reward.aggregate=gdpo", "reward.aggregate=gdpo advantage=global", key="advantage"),
        _parts(
            "reward.aggregate=gdpo advantage=gdpo reward.normalise=group", key="reward.normalise"
        ),
    ],
    "require_matching_media": [
        _of(
            ("model=tiny_sd3 reward=length", "reward"),
            ("model=tiny_gpt2 reward=shapes", "reward"),
            ("model=tiny_gpt2 reward=compressibility", "reward"),
            ("eval_rewards.of=[length]", "eval_rewards.parts.length"),
            ("reward=combine reward.of=[shapes,json]", "reward.parts.json"),
        ),
    ],
    "require_prompt_feature": [
        _of(("reward=ocr prompts=animals", "reward"), ("reward=ocr prompts=shapes", "reward")),
    ],
    "require_readable_prompts": [
        _of(
            (
                "prompts=datasets prompts.path=no/where.csv reward=compressibility",
                "prompts.path",
            )
        ),
    ],
    "require_functions": [
        _of(
            ("reward=image_function reward.function=nowhere.py:score", "reward.function"),
            ("model=tiny_gpt2 reward=function reward.function=nowhere.py:f", "reward.function"),
        ),
    ],
    "require_known_lora_targets": [
        _of(("model.finetune=lora model.lora_targets=[nowhere]", "model.lora_targets")),
    ],
    "require_model_folders": [
        _of(
            ("model.path=/no/where", "model.path"),
            ("model.path=zoo:none", "model.path"),
            ("model.path=nowhere", "model.path"),
            ("model=tiny_sd model.path=zoo:tiny_gpt2", "model.path"),
            ("model=tiny_gpt2 model.path=zoo:tiny_flux", "model.path"),
            ("model=tiny_gpt2 model.value_path=./no", "model.value_path"),
        ),
    ],
    "require_divisible_sizes": [_sizes],
    "require_matching_embedded_guidance": [
        _of(("model=tiny_flux model.embedded_guidance=null", "model.embedded_guidance")),
    ],
    "require_valid_optimizer": [_optimizer],
    "require_equal_precision": [
        lambda rng: (
            f"algo={rng.choice(STEPWISE)} precision=bf16_rollout algo.old_log_probs=sampled",
            "algo.old_log_probs",
        ),
        _of(
            ("precision.weights=bfloat16", "precision.weights"),
            ("precision=bf16 precision.learning=float32", "precision.weights"),
        ),
    ],
    "require_guidance_above_one": [
        lambda rng: (f"model.guidance={rng.choice([0.1, 0.5, 0.9])}", "model.guidance"),
        _of(("model.negative_prompt=blurred", "model.guidance")),
    ],
    "require_reward_gradient": [
        _of(("algo=draft reward=compressibility", "reward")),
        _of(
            ("algo=draft reward=jpeg_standin dynamics=dpm_solver", "dynamics"),
            ("algo=draft reward=jpeg_standin scoring.offload=true", "scoring.offload"),
        ),
    ],
    "require_stop_tokens": [
        _of(
            (
                "model=tiny_gpt2 dynamics.stop=[filmography] dynamics.stop_match=token",
                "dynamics.stop_match",
            )
        ),
    ],
}
ELSEWHERE = {
    *("require_splits", "require_folders", "require_installed"),
    *("require_followed_scheduler", "require_possible_frames"),
    *("require_own_transformers", "require_plain_weights", "require_readable_pictures"),
    "require_reward_models",
}
"""Rules about files, which cases of paths break, and about what is installed."""


def crossed(rng: random.Random) -> Case:
    """A rule broken, each as often as any other."""
    rule = rng.choice(sorted(BREAKS))
    words, key = rng.choice(BREAKS[rule])(rng)
    return planned(rng, f"against {rule}", words.split(" "), key)


def every_rule(rng: random.Random) -> Iterator[Case]:
    """A case of each rule, for tests."""
    for rule, ways in BREAKS.items():
        words, key = rng.choice(ways)(rng)
        yield planned(rng, f"against {rule}", words.split(" "), key)
